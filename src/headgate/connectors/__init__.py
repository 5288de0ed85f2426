"""Sources and sinks: `connector.py` says what each is, `built_in_sources.py` and `built_in_sinks.py` make them."""
