"""How a host behaves: what it accepts, how it names calls, how it reports errors."""
