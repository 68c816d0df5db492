"""What a rubric data set is worth: leakage, composition, duplicates, faithfulness. `papergym audit`."""
