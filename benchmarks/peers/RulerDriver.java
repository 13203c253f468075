import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import software.amazon.event.ruler.Machine;

/**
 * Matches a workload's events with Event Ruler. In: lines of rules (an id, a tab and the rule's JSON) and of events
 * (JSON). Out: one line of JSON with what was measured, and a file with the matches of every event.
 */
public final class RulerDriver {
  public static void main(String[] given) throws Exception {
    Map<String, String> options = new HashMap<>();
    for (int at = 0; at < given.length; at += 2) {
      options.put(given[at], given[at + 1]);
    }
    long started = cpuTime();
    Machine machine = Machine.builder().build();
    int rules = 0;
    try (BufferedReader lines = Files.newBufferedReader(Path.of(options.get("--queries")))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        int tab = line.indexOf('\t');
        machine.addRule(line.substring(0, tab), line.substring(tab + 1));
        rules++;
      }
    }
    double registering = seconds(started);
    List<String> events = Files.readAllLines(Path.of(options.get("--items")), StandardCharsets.UTF_8);
    match(machine, events.subList(0, Math.min(events.size(), Integer.parseInt(options.get("--warm")))), null);
    System.gc();
    long heap = Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    long wall = System.nanoTime();
    long before = cpuTime();
    match(machine, events, null);
    double matching = seconds(before);
    double elapsed = (System.nanoTime() - wall) / 1e9;
    try (DataOutputStream out =
        new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(Path.of(options.get("--matches")))))) {
      match(machine, events, out);
    }
    System.out.printf(
        "{\"queries\": %d, \"items\": %d, \"compile_cpu_seconds\": %f, \"cpu_seconds\": %f, \"seconds\": %f,"
            + " \"heap_megabytes\": %f}%n",
        rules, events.size(), registering, matching, elapsed, heap / 1048576.0);
  }

  private static void match(Machine machine, List<String> events, DataOutputStream out) throws Exception {
    for (String event : events) {
      List<String> found = machine.rulesForJSONEvent(event);
      if (out != null) {
        write(found, out);
      }
    }
  }

  private static void write(List<String> found, DataOutputStream out) throws IOException {
    int[] ids = found.stream().mapToInt(Integer::parseInt).sorted().toArray();
    out.writeInt(ids.length);
    for (int id : ids) {
      out.writeInt(id);
    }
  }

  private static long cpuTime() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  private static double seconds(long started) {
    return (cpuTime() - started) / 1e9;
  }
}
