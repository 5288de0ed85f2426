"""The webhook sink: it sends rows to a service by HTTP. `webhook_functions` has the function of `hg.sinks`."""
