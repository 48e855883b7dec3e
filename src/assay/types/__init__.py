"""The nouns that flow from data and model to scores: batch, dataset, model, case, trial, scores."""

from assay.types.batch import Batch as Batch
from assay.types.batch import Prepare as Prepare
from assay.types.card import Card as Card
from assay.types.case import Case as Case
from assay.types.case import Respond as Respond
from assay.types.dataset import UPPER_BOUND as UPPER_BOUND
from assay.types.dataset import Dataset as Dataset
from assay.types.dataset import Sample as Sample
from assay.types.model import Model as Model
from assay.types.model import Observation as Observation
from assay.types.model import OutputRead as OutputRead
from assay.types.painted import Parts as Parts
from assay.types.pixels import Pixels as Pixels
from assay.types.pixels import Preprocess as Preprocess
from assay.types.response import Response as Response
from assay.types.scores import Scores as Scores
from assay.types.tokens import Tokenize as Tokenize
from assay.types.tokens import Tokens as Tokens
from assay.types.trial import Split as Split
from assay.types.trial import Trial as Trial
