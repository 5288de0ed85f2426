"""Sources and sinks: `sources` and `sinks` are the public faces, `base` is what each of them is."""
