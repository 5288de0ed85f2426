"""Sources that read files: paths to files, files to splits, splits to batches of rows."""
