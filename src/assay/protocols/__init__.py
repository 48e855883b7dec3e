"""Evaluation protocols: does an attribution map agree with what the model does?"""
