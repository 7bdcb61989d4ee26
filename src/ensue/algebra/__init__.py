"""The narrow waist: every language ends here, every plan starts here."""
