"""Wake-ups: "there may be work". Only ever a hint; every part also works by polling alone."""
