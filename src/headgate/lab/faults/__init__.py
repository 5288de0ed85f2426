"""What mechanisms do when one of their signals, or the one who carries it, is lost."""
