"""When a verifier is out, for how long, and what brings it back."""

from __future__ import annotations

from gateway.verifiers.conduct import Conduct


def test_requests_count_once_and_pauses_grow_to_a_bound() -> None:
    now = [0.0]
    conduct = Conduct(lambda: now[0])
    for request_id in ("a", "a~1", "a/2", "a/1~3", "b", "b"):
        conduct.failed(request_id)
        conduct.convict(request_id)
    assert conduct.is_in
    assert conduct.is_doubtful
    assert conduct.complaint == ""
    conduct.succeeded()
    assert not conduct.is_doubtful
    pauses = []
    for request_id in "cde":
        conduct.convict(request_id)
    for _ in range(8):
        began = now[0]
        assert not conduct.is_in
        conduct.succeeded()  # one that had begun before proves nothing
        conduct.convict("f")
        assert not conduct.is_in
        while not conduct.is_in:
            now[0] += 0.25
        pauses.append(now[0] - began)
        assert conduct.begun()
        assert not conduct.is_in  # the one that tries it is under way
        conduct.convict("g")
        conduct.probed()
    assert 3.75 <= pauses[0] <= 6.5
    assert pauses[3] > 2 * pauses[0]
    assert 90 <= pauses[-1] <= 150.25
    assert len(set(pauses)) > 4
    while not conduct.is_in:
        now[0] += 1.0
    conduct.succeeded()
    assert (conduct.is_in, conduct.begun(), conduct.complaint) == (True, False, "")
