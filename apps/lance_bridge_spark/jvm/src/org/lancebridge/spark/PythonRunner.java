package org.lancebridge.spark;

import java.time.Duration;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import scala.Option;

/**
 * Manages the Python process of a launch: the first use starts it, and it ends with the application, with the JVM, or
 * when it was idle for some time; the next use starts another.
 */
final class PythonRunner {
  private final PythonLaunch launch;
  private PythonProcess process;
  private volatile Duration idle;

  PythonRunner(PythonLaunch launch) {
    this.launch = launch;
  }

  /** @param idle how long an idle process is kept */
  synchronized PythonProcess running(Duration idle) {
    this.idle = idle;
    if (process == null || !process.isAlive()) {
      process = PythonProcess.start(launch);
      endWithApplication(process);
      endWhenIdle(process);
    }
    return process.inUse();
  }

  /** End the process with the application. An executor's JVM has no context; its process ends with the JVM. */
  private static void endWithApplication(PythonProcess process) {
    Option<SparkContext> context = SparkContext$.MODULE$.getActive();
    if (context.isDefined()) {
      context.get().addSparkListener(new SparkListener() {
        @Override
        public void onApplicationEnd(SparkListenerApplicationEnd end) {
          process.end();
        }
      });
    }
  }

  private void endWhenIdle(PythonProcess watched) {
    Thread thread = new Thread(() -> {
      while (watched.isAlive() && !endIfIdle(watched)) {
        try {
          Thread.sleep(Math.max(100, Math.min(10_000, idle.toMillis() / 4)));
        } catch (InterruptedException error) {
          return;
        }
      }
    }, "lance-bridge-python-idle");
    thread.setDaemon(true);
    thread.start();
  }

  /** Synchronized with {@link #running}, so that no caller gets a process that is about to end. */
  private synchronized boolean endIfIdle(PythonProcess watched) {
    boolean done = watched.isIdle(idle);
    if (done) {
      watched.end();
      process = null;
    }
    return done;
  }
}
