"""The bridge: job envelopes that come in through a broker, and outcomes that go out through it."""
