"""Spark's own classes answer: a small Java class calls them for many sequences at once, because each call from Python
costs a round trip. Spark's own compiler for generated code (Janino) compiles it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

_ESTIMATOR = """
public class Estimates implements java.util.function.Function {
    // A line is the constructor's five numbers, then four numbers for each call. The answer has a word for each call.
    public Object apply(Object lines) {
        StringBuilder answers = new StringBuilder();
        for (String line : ((String) lines).split("\\n")) {
            String[] words = line.split(" ");
            org.apache.spark.streaming.scheduler.rate.PIDRateEstimator estimator =
                new org.apache.spark.streaming.scheduler.rate.PIDRateEstimator(
                    Long.parseLong(words[0]), Double.parseDouble(words[1]), Double.parseDouble(words[2]),
                    Double.parseDouble(words[3]), Double.parseDouble(words[4]));
            for (int i = 5; i < words.length; i += 4) {
                scala.Option rate = estimator.compute(
                    Long.parseLong(words[i]), Long.parseLong(words[i + 1]),
                    Long.parseLong(words[i + 2]), Long.parseLong(words[i + 3]));
                answers.append(rate.isEmpty() ? "None" : Double.toHexString(((Double) rate.get()).doubleValue()));
                answers.append(' ');
            }
            answers.append('\\n');
        }
        return answers.toString();
    }
}
"""

_LIMITER = """
public class Limits implements java.util.function.Function {
    // A line is the rate, then "take NOW ROWS" or "rate NOW RATE" again and again; times are in microseconds.
    // The answer has a word for each step: until when the next one has to wait.
    public Object apply(Object lines) {
        try {
            StringBuilder answers = new StringBuilder();
            String home = "org.sparkproject.guava.util.concurrent.";
            Class limiters = Class.forName(home + "RateLimiter");
            Class smooth = Class.forName(home + "SmoothRateLimiter");
            java.lang.reflect.Method create = limiters.getMethod("create", new Class[] {double.class});
            java.lang.reflect.Method take =
                smooth.getDeclaredMethod("reserveEarliestAvailable", new Class[] {int.class, long.class});
            java.lang.reflect.Method rate =
                smooth.getDeclaredMethod("doSetRate", new Class[] {double.class, long.class});
            java.lang.reflect.Field free = smooth.getDeclaredField("nextFreeTicketMicros");
            take.setAccessible(true);
            rate.setAccessible(true);
            free.setAccessible(true);
            for (String line : ((String) lines).split("\\n")) {
                String[] words = line.split(" ");
                Object limiter = create.invoke(null, new Object[] {Double.valueOf(words[0])});
                free.setLong(limiter, 0L); // it was made a moment ago, by the clock of the machine
                for (int i = 1; i < words.length; i += 3) {
                    Long now = Long.valueOf(words[i + 1]);
                    if (words[i].equals("take")) {
                        take.invoke(limiter, new Object[] {Integer.valueOf(words[i + 2]), now});
                    } else {
                        rate.invoke(limiter, new Object[] {Double.valueOf(words[i + 2]), now});
                    }
                    answers.append(free.getLong(limiter)).append(' ');
                }
                answers.append('\\n');
            }
            return answers.toString();
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }
}
"""


def pid_estimates(spark: SparkSession, sequences: Iterable[str]) -> list[list[float | None]]:
    """Return what Spark's `PIDRateEstimator` returns for each call of each sequence."""
    answers = _ask(spark, "Estimates", _ESTIMATOR, sequences)
    return [[None if word == "None" else float.fromhex(word) for word in words] for words in answers]


def rate_limits(spark: SparkSession, sequences: Iterable[str]) -> list[list[int]]:
    """Return until when Guava's `RateLimiter` lets the next one wait, in microseconds, after each step."""
    return [[int(word) for word in words] for words in _ask(spark, "Limits", _LIMITER, sequences)]


def _ask(spark: SparkSession, name: str, source: str, sequences: Iterable[str]) -> list[list[str]]:
    jvm: Any = spark.sparkContext._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(source)
    asked = compiler.getClassLoader().loadClass(name).newInstance()
    return [line.split() for line in str(asked.apply("\n".join(sequences))).splitlines()]
