"""Gates: claims of workers, and which items pass, in the order of the log."""
