"""Sources and sinks: `connector.py` defines the interfaces; `built_in_sources.py` and `built_in_sinks.py` have the
functions that users call."""
