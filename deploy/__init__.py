"""What it takes to run PushUp with everything around it; README.md says what is here."""
