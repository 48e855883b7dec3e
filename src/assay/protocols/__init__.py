"""Evaluation protocols: does a map agree with what the model does?"""
