"""Finds, without a GPU, where a model or a pooler would make a GPU and the CPU wait for each other."""

from cenote.audit.finding import KINDS, Finding, Kind, Place
from cenote.audit.known import Known
from cenote.audit.model import DTYPES, audit_model
from cenote.audit.pooler import audit_pooler
from cenote.audit.report import Report

__all__ = ["DTYPES", "KINDS", "Finding", "Kind", "Known", "Place", "Report", "audit_model", "audit_pooler"]
