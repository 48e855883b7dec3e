"""A run's folder: files written whole or not at all, and the schemas of its tables."""

from assay.store.files import NOWHERE as NOWHERE
from assay.store.files import Store as Store
from assay.store.files import file_name as file_name
from assay.store.files import require_run as require_run
from assay.store.tables import CHECKS as CHECKS
from assay.store.tables import CURVES as CURVES
from assay.store.tables import REDUCED as REDUCED
from assay.store.tables import SCORES as SCORES
from assay.store.tables import SHOWN_ONLY as SHOWN_ONLY
from assay.store.tables import Array as Array
from assay.store.tables import query as query
