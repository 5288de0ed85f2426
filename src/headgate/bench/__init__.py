"""The measurements of `headgate bench`. Each case is one module with `run(options) -> CaseResult`."""
