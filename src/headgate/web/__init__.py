"""The page of a program's jobs, the same as JSON, and the metrics for Prometheus: one HTTP server on the driver."""
