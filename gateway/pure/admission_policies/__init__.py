"""Admission policies as documents: ValidatingAdmissionPolicy with its bindings."""
