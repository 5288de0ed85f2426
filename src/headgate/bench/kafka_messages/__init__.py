"""The case `kafka`: messages from and to a broker, on Headgate, on Spark and in a bare loop."""
