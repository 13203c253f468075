import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.lucene.analysis.core.WhitespaceAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.DoublePoint;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.Term;
import org.apache.lucene.monitor.Monitor;
import org.apache.lucene.monitor.MonitorConfiguration;
import org.apache.lucene.monitor.MonitorQuery;
import org.apache.lucene.monitor.MultiMatchingQueries;
import org.apache.lucene.monitor.MultipassTermFilteredPresearcher;
import org.apache.lucene.monitor.Presearcher;
import org.apache.lucene.monitor.QueryMatch;
import org.apache.lucene.monitor.TermFilteredPresearcher;
import org.apache.lucene.monitor.TermWeightor;
import org.apache.lucene.search.BooleanClause.Occur;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.MatchAllDocsQuery;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.TermQuery;

/**
 * Matches a workload's items with Lucene's monitor. In: lines of queries, items and, where given, document
 * frequencies. Out: one line of JSON with what was measured, and a file with the matches of every item.
 *
 * <p>A line of queries is an id and clauses, separated by tabs; a clause is words, `-` before a negated one, or
 * `#attribute:low:high`. A line of items is its numbers and its text, separated by tabs.
 */
public final class MonitorDriver {
  private static final String[] NUMBERS = {"price", "score", "day", "source"};
  private static final int REGISTERED_TOGETHER = 10_000;

  public static void main(String[] given) throws Exception {
    Map<String, String> options = new HashMap<>();
    for (int at = 0; at < given.length; at += 2) {
      options.put(given[at], given[at + 1]);
    }
    int batch = Integer.parseInt(options.getOrDefault("--batch", "1"));
    int passes = Integer.parseInt(options.getOrDefault("--passes", "0"));
    MonitorConfiguration configuration = new MonitorConfiguration();
    configuration.setQueryUpdateBufferSize(REGISTERED_TOGETHER);
    long started = cpuTime();
    try (Monitor monitor =
        new Monitor(new WhitespaceAnalyzer(), presearcher(passes, options.get("--frequencies")), configuration)) {
      int queries = register(monitor, Path.of(options.get("--queries")));
      double registering = seconds(started);
      List<Document> items = items(Path.of(options.get("--items")));
      match(monitor, items.subList(0, Math.min(items.size(), Integer.parseInt(options.get("--warm")))), batch, null);
      System.gc();
      long heap = Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
      long wall = System.nanoTime();
      long before = cpuTime();
      long[] counted;
      try (DataOutputStream out =
          new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(Path.of(options.get("--matches")))))) {
        counted = match(monitor, items, batch, out);
      }
      System.out.printf(
          "{\"queries\": %d, \"items\": %d, \"compile_cpu_seconds\": %f, \"cpu_seconds\": %f, \"seconds\": %f,"
              + " \"queries_run\": %d, \"heap_megabytes\": %f}%n",
          queries,
          items.size(),
          registering,
          seconds(before),
          (System.nanoTime() - wall) / 1e9,
          counted[0],
          heap / 1048576.0);
    }
  }

  private static Presearcher presearcher(int passes, String frequencies) throws IOException {
    TermWeightor weightor = TermFilteredPresearcher.DEFAULT_WEIGHTOR;
    if (frequencies != null) {
      Map<String, Integer> counts = new HashMap<>();
      for (String line : Files.readAllLines(Path.of(frequencies), StandardCharsets.UTF_8)) {
        int tab = line.indexOf('\t');
        counts.put(line.substring(0, tab), Integer.parseInt(line.substring(tab + 1)));
      }
      weightor = TermWeightor.termFreqWeightor(counts, 100, 1);
    }
    return passes < 2
        ? new TermFilteredPresearcher(weightor, List.of(), Set.of())
        : new MultipassTermFilteredPresearcher(passes, 0, weightor, List.of(), Set.of());
  }

  private static int register(Monitor monitor, Path path) throws IOException {
    int count = 0;
    List<MonitorQuery> waiting = new ArrayList<>();
    try (BufferedReader lines = Files.newBufferedReader(path)) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] parts = line.split("\t");
        waiting.add(new MonitorQuery(parts[0], query(parts)));
        count++;
        if (waiting.size() == REGISTERED_TOGETHER) {
          monitor.register(waiting);
          waiting = new ArrayList<>();
        }
      }
    }
    monitor.register(waiting);
    return count;
  }

  private static Query query(String[] parts) {
    BooleanQuery.Builder all = new BooleanQuery.Builder();
    boolean positive = false;
    for (int at = 1; at < parts.length; at++) {
      String[] literals = parts[at].split(" ");
      if (literals.length == 1 && literals[0].startsWith("-")) {
        all.add(literal(literals[0].substring(1)), Occur.MUST_NOT);
      } else {
        all.add(clause(literals), Occur.FILTER);
        positive = true;
      }
    }
    if (!positive) {
      all.add(new MatchAllDocsQuery(), Occur.FILTER);
    }
    return all.build();
  }

  private static Query clause(String[] literals) {
    if (literals.length == 1) {
      return literal(literals[0]);
    }
    BooleanQuery.Builder any = new BooleanQuery.Builder();
    for (String literal : literals) {
      if (literal.startsWith("-")) {
        BooleanQuery.Builder not = new BooleanQuery.Builder();
        not.add(new MatchAllDocsQuery(), Occur.FILTER);
        not.add(literal(literal.substring(1)), Occur.MUST_NOT);
        any.add(not.build(), Occur.SHOULD);
      } else {
        any.add(literal(literal), Occur.SHOULD);
      }
    }
    return any.build();
  }

  private static Query literal(String literal) {
    if (!literal.startsWith("#")) {
      return new TermQuery(new Term("text", literal));
    }
    String[] range = literal.substring(1).split(":");
    return DoublePoint.newRangeQuery(range[0], Double.parseDouble(range[1]), Double.parseDouble(range[2]));
  }

  private static List<Document> items(Path path) throws IOException {
    List<Document> items = new ArrayList<>();
    try (BufferedReader lines = Files.newBufferedReader(path)) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] parts = line.split("\t", NUMBERS.length + 1);
        Document item = new Document();
        for (int at = 0; at < NUMBERS.length; at++) {
          item.add(new DoublePoint(NUMBERS[at], Double.parseDouble(parts[at])));
        }
        item.add(new TextField("text", parts[NUMBERS.length], Field.Store.NO));
        items.add(item);
      }
    }
    return items;
  }

  /** Matches the items, batch by batch; the answer is how many queries were run on a batch, in all. */
  private static long[] match(Monitor monitor, List<Document> items, int batch, DataOutputStream out)
      throws IOException {
    long run = 0;
    for (int start = 0; start < items.size(); start += batch) {
      Document[] some = items.subList(start, Math.min(items.size(), start + batch)).toArray(new Document[0]);
      MultiMatchingQueries<QueryMatch> found = monitor.match(some, QueryMatch.SIMPLE_MATCHER);
      run += found.getQueriesRun();
      for (int row = 0; row < some.length && out != null; row++) {
        write(found.getMatches(row), out);
      }
    }
    return new long[] {run};
  }

  private static void write(Collection<QueryMatch> matches, DataOutputStream out) throws IOException {
    int[] ids = matches.stream().mapToInt(match -> Integer.parseInt(match.getQueryId())).sorted().toArray();
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
