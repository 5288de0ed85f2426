"""Build Spark sessions, and prepare sessions that the user built.

A running SparkContext cannot change its driver address, barrier check interval and log settings, so only
`build_session` sets them. `prepare` and `safe_path` set what Spark reads again for every job: which Python the workers
run, and what it imports.
"""

from __future__ import annotations

import atexit
import os
import shutil
import site
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headgate.errors import ConfigError, SessionLost
from headgate.spark.scratch import SPARK, Scratch, remove_abandoned

#: The exceptions that Py4J raises when it cannot reach the JVM.
NO_JVM = (Py4JError, OSError)
JVM_ENDED = (
    "Spark's JVM, which runs the driver of this session, does not answer any more: it was killed, ran out of memory or "
    "crashed"
)

#: How many seconds this process waits at its exit for the JVM, and after that for the executors.
_EXIT_TIMEOUT = 5.0


def build_session(master: str, app_name: str, **conf: str) -> SparkSession:
    """Start Spark on `master`, without messages on the terminal, and return the session.

    `conf` are Spark settings; they override Headgate's. The log of the JVM, the work folder of `local-cluster` and all
    spill files are in one temporary folder, which is removed when this process ends. Raises ConfigError if the JVM does
    not start.
    """
    scratch = _scratch()
    settings = SparkConf(loadDefaults=False)
    settings.setAll(list((_settings(master, app_name, scratch.folder) | conf).items()))
    gateway = None if SparkContext._gateway is not None else _launch(settings, master, scratch)
    SparkContext(conf=settings, gateway=gateway)
    spark = SparkSession.builder.getOrCreate()
    prepare(spark)
    return spark


def prepare(spark: SparkSession) -> None:
    """Make any session run Python workers that find this package.

    Raises ConfigError for Spark Connect, and SessionLost for a stopped session.
    """
    context = context_of(spark)
    named = os.environ.get("PYSPARK_PYTHON")
    if named is None or is_local(context):  # on other machines only the path that the user named may be right
        context.pythonExec = sys.executable
    root = _package_root()
    paths = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    if root is not None and root not in paths:
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, *paths]))


#: `safe_path` holds this lock while it has replaced a context's environment, so that each thread restores the right
#: one.
_environments = threading.Lock()


@contextmanager
def safe_path(context: SparkContext) -> Iterator[None]:
    """Prevent workers from importing modules of their working folder. This applies to functions that the `with` block
    creates.

    Spark starts workers with `-m`, in a folder that may have files of other people. A value of PYTHONSAFEPATH that the
    user has set stays.
    """
    with _environments:
        before = context.environment
        context.environment = {"PYTHONSAFEPATH": "1", **before}
        try:
            yield
        finally:
            context.environment = before


def context_of(spark: SparkSession) -> SparkContext:
    """Return the session's SparkContext.

    Raises ConfigError for Spark Connect, which has no SparkContext, and SessionLost for stopped sessions.
    """
    try:
        context = spark.sparkContext
    except Exception:
        raise ConfigError(
            "a Spark Connect session cannot run jobs: TaskManagers must connect to this program, but Connect has "
            "connections only from the program to its server. Connect also hides how many task slots there are. Use a "
            "classic session, in a program that executors reach: SparkSession.builder.master(...).getOrCreate()"
        ) from None
    with jvm_errors(context):
        if is_stopped(context):
            raise SessionLost("this Spark session has been stopped; build a new one")
    return context


@contextmanager
def jvm_errors(context: SparkContext) -> Iterator[None]:
    """Raise SessionLost in place of Py4J's errors if the JVM of the context is gone."""
    try:
        yield
    except NO_JVM as error:
        if jvm_answers(context):
            raise
        raise SessionLost(f"{JVM_ENDED} ({type(error).__name__}: {error}); start the program again") from None


def jvm_answers(context: SparkContext) -> bool:
    """Return whether the JVM of the context answers. The JVM of a stopped context may answer too."""
    try:
        context._jvm.java.lang.System.nanoTime()  # type: ignore[union-attr]
    except NO_JVM:
        return False
    return True


def is_stopped(context: SparkContext) -> bool:
    """Return whether the context is stopped or is being stopped. Spark shows this before it ends the context's jobs."""
    jsc = context._jsc
    return jsc is None or bool(jsc.sc().isStopped())


def is_local(context: SparkContext) -> bool:
    """Return whether all executors run on this machine, so that the loopback interface connects them."""
    return str(context.master).startswith("local")


@cache
def _scratch() -> Scratch:
    """Return the folder for all files that Spark writes. All sessions share the folder, because they share one JVM."""
    remove_abandoned(SPARK, Path(tempfile.gettempdir()))
    scratch = Scratch()
    atexit.register(_clean_up, scratch.folder)
    return scratch


#: JVM options with which an executor starts fast, mainly for an executor that replaces a lost one. An executor does
#: little besides running Python workers. On few cores, the optimizing compiler and the parallel garbage collector take
#: most of the start time.
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def _settings(master: str, app_name: str, scratch: Path) -> dict[str, str]:
    """Return the Spark settings of a session that Headgate builds."""
    settings = {
        "spark.master": master,
        "spark.app.name": app_name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.task.killTimeout": "1s",
        "spark.python.daemon.module": "headgate.spark.daemon",
        "spark.executorEnv.PYTHONSAFEPATH": "1",  # for all workers; `safe_path` is only for workers of Headgate's jobs
        "spark.executor.extraJavaOptions": _QUICK_START,
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if _on_loopback(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings["spark.local.dir"] = str(scratch / "local")
    root = _package_root()
    if root is not None:
        settings["spark.executorEnv.PYTHONPATH"] = root
    return settings


def _on_loopback(master: str) -> bool:
    return master.startswith(("local", "spark://127.0.0.1", "spark://localhost"))


def _package_root() -> str | None:
    """Return the folder to add to the workers' import path; None if this package is installed.

    The package is not installed if it runs from its source tree.
    """
    root = str(Path(__file__).resolve().parents[2])
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    return None if root in map(os.path.realpath, installed) else root


def _launch(settings: SparkConf, master: str, scratch: Scratch) -> Any:
    """Start the JVM with its log in a file. `os.environ` is changed only during the start."""
    _require_java()
    variables = {"SPARK_HOME": str(_private_home(scratch.folder)), "PYSPARK_PYTHON": sys.executable}
    if _on_loopback(master):
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    log = scratch.folder / "spark.log"
    try:
        with log.open("wb") as stderr, _environment(variables):
            options = {"stderr": stderr, "pass_fds": (scratch.lock,)}
            return launch_gateway(settings, options)  # type: ignore[no-untyped-call]
    except Exception as error:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise ConfigError(f"Spark's JVM did not start; it needs Java 17 or newer. It said:\n{tail or error}") from None


def _require_java() -> None:
    """Raise ConfigError if there is no Java where Spark's scripts look for it."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which(os.path.join(home, "bin", "java") if home else "java") is None:
        reason = f"JAVA_HOME={home} has no bin/java" if home else "JAVA_HOME is not set, and PATH has no java"
        raise ConfigError(
            f"Spark needs Java, and none was found: {reason}; install Java 17 (Debian and Ubuntu: "
            "openjdk-17-jre-headless, Homebrew: openjdk@17), or set JAVA_HOME to the folder that it is in"
        )


def _private_home(scratch: Path) -> Path:
    """Make a SPARK_HOME of links, with a `work` folder of its own, and return it.

    `local-cluster` writes executors' logs to `work`. Spark's own folder is in site-packages, which may be read-only.
    """
    home = scratch / "home"
    if not home.is_dir():
        (home / "work").mkdir(parents=True)
        for entry in Path(_find_spark_home()).iterdir():
            if entry.name != "work":
                (home / entry.name).symlink_to(entry)
    return home


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables while the context is open."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _clean_up(scratch: Path) -> None:
    """At exit: stop the context, end the JVM by closing its stdin, then remove the files that the JVM wrote."""
    if SparkContext._active_spark_context is not None:
        with suppress(*NO_JVM):
            SparkContext._active_spark_context.stop()
    gateway = SparkContext._gateway
    if gateway is not None and gateway.proc is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(_EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
    deadline = time.monotonic() + _EXIT_TIMEOUT
    while scratch.exists() and time.monotonic() < deadline:  # again, since executors may still write their logs
        shutil.rmtree(scratch, ignore_errors=True)
