"""What mechanisms do when one of their signals, or the service that carries it, is lost."""
