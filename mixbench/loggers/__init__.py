"""Where runs are written beside their records: experiment loggers, all optional."""
