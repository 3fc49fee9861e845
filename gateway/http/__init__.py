"""OpenAI's API over HTTP, and /livez and /readyz: another skin of `gateway.answers`, beside `gateway.service`."""
