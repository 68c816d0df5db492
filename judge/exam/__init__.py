"""The exam of a judge: how often it agrees with a reader, and what it pays plans that only look like one.

labels.json holds the questions, rubrics and references of twelve sample papers, plans, and for pairs of plan and criterion what a reader
said before seeing any verdict, with the reason. Half of the plans are held back: rules are fitted on the others alone.
"""
