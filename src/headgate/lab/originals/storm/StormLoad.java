import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * A paced spout and a slow bolt in a local cluster: {@code StormLoad FOLDER RATE COST SECONDS [OPTION=VALUE...]}.
 *
 * The spout writes a line with the time of each tuple that it emits to the file "emitted" of the folder, and the bolt
 * writes the time of each tuple that it has processed to "done", in milliseconds since the epoch. SECONDS after the
 * first tuple the program ends. It compiles against Storm 1.x and 2.x.
 */
public final class StormLoad {
    private static final long START_MS = 120_000;
    /** The spout and the bolt make up for at most so many seconds. */
    private static final double SAVED_S = 0.002;

    public static void main(String[] given) throws Exception {
        String folder = given[0];
        TopologyBuilder topology = new TopologyBuilder();
        topology.setSpout("load", new Load(folder, Double.parseDouble(given[1])), 1);
        topology.setBolt("slow", new Slow(folder, Double.parseDouble(given[2])), 1).shuffleGrouping("load");
        Config config = new Config();
        for (int i = 4; i < given.length; i++) {
            String[] option = given[i].split("=", 2);
            config.put(option[0], parsed(option[1]));
        }
        new LocalCluster().submitTopology("lab", config, topology.createTopology());
        awaitFirst(new File(folder, "emitted"));
        Thread.sleep((long) (Double.parseDouble(given[3]) * 1000));
        Runtime.getRuntime().halt(0);
    }

    private static Object parsed(String value) {
        if (value.equals("true") || value.equals("false")) {
            return Boolean.valueOf(value);
        }
        return value.matches("[0-9]+") ? (Object) Integer.valueOf(value) : (Object) Double.valueOf(value);
    }

    private static void awaitFirst(File file) throws InterruptedException {
        for (long waited = 0; file.length() == 0; waited += 20) {
            if (waited > START_MS) {
                System.err.println("the spout has emitted nothing");
                Runtime.getRuntime().halt(1);
            }
            Thread.sleep(20);
        }
    }

    private static PrintStream lines(String folder, String name) {
        try {
            return new PrintStream(new FileOutputStream(new File(folder, name), true), true);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Emits RATE tuples per second. */
    public static final class Load extends BaseRichSpout {
        private final String folder;
        private final double rate;
        private transient SpoutOutputCollector output;
        private transient PrintStream emitted;
        private double due;

        Load(String folder, double rate) {
            this.folder = folder;
            this.rate = rate;
        }

        @Override
        @SuppressWarnings("rawtypes")
        public void open(Map config, TopologyContext context, SpoutOutputCollector collector) {
            output = collector;
            emitted = lines(folder, "emitted");
            due = System.nanoTime() / 1e9;
        }

        @Override
        public void nextTuple() {
            double now = System.nanoTime() / 1e9;
            if (now < due) {
                return;
            }
            due = Math.max(due, now - SAVED_S) + 1 / rate;
            output.emit(new Values(0));
            emitted.println(System.currentTimeMillis());
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("n"));
        }
    }

    /** Needs COST seconds for a tuple. */
    public static final class Slow extends BaseRichBolt {
        private final String folder;
        private final double cost;
        private transient PrintStream done;
        private double freeAt;

        Slow(String folder, double cost) {
            this.folder = folder;
            this.cost = cost;
        }

        @Override
        @SuppressWarnings("rawtypes")
        public void prepare(Map config, TopologyContext context, OutputCollector collector) {
            done = lines(folder, "done");
        }

        @Override
        public void execute(Tuple tuple) {
            double now = System.nanoTime() / 1e9;
            freeAt = Math.max(freeAt, now - SAVED_S) + cost;
            try {
                TimeUnit.MICROSECONDS.sleep((long) ((freeAt - now) * 1e6));
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
            done.println(System.currentTimeMillis());
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {}
    }
}
