"""The errors of the drop-in; their classes, and who derives from whom, are submitit's."""


class UncompletedJobError(RuntimeError):
    """The job ended without a result: it was killed, cancelled, lost, or could not start."""


class FailedJobError(UncompletedJobError):
    """The function raised; the text is the job's traceback, the cause the exception itself."""


class FailedSubmissionError(RuntimeError):
    """The scheduler's answer to a submission has no job id in it."""
