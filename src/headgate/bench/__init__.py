"""The measurements behind `headgate bench`: each case is one module with `run(options) -> CaseResult`."""
