"""The history of a job's metrics, and the diagnosis that is made from it. No module starts threads or reads clocks."""
