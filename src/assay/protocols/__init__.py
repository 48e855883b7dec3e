"""Evaluation protocols: does what a map says agree with what the model does?"""
