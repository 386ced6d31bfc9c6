"""What is known before labels are, and how labels come."""
