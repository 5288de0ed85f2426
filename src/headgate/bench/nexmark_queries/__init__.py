"""The case `nexmark`: the queries of Nexmark on Headgate and on Flink SQL."""
