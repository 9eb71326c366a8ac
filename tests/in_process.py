"""An engine for papermill that runs cells in this process: no kernel has to start and load PyTorch."""

import matplotlib.pyplot as plt
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbformat.v4 import new_output
from papermill.engines import Engine
from traitlets.config import Config


class InProcess(Engine):
    """Keeps what a cell prints to stdout; an exception in a cell is raised as it is."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, **options):
        shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
        shell.reset(new_session=False)
        for cell in (cell for cell in nb_man.nb.cells if cell.cell_type == "code"):
            with capture_output() as captured:
                result = shell.run_cell(cell.source)
            result.raise_error()
            cell.outputs = [new_output("stream", name="stdout", text=captured.stdout)]
        plt.close("all")
