"""Running on Spark: sessions, the deployment, and sources and sinks of DataFrames."""
