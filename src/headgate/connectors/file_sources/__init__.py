"""Sources that read files. They turn paths into files, files into splits, and splits into batches of rows."""
