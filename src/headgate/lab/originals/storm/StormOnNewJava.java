import clojure.lang.AFn;
import clojure.lang.RT;
import clojure.lang.Reflector;
import clojure.lang.Symbol;
import java.nio.ByteBuffer;

/**
 * Runs StormLoad with Storm 1.2 on a newer Java.
 *
 * Storm 1.2 finds the newest time in ZooKeeper with a call of Math.max that Clojure resolves at run time. Newer
 * versions of Java list the method for int first, so the times lose their upper bits and nothing is ever throttled.
 * This function, which replaces that one, compares whole numbers of 64 bits.
 */
public final class StormOnNewJava {
    public static void main(String[] given) throws Exception {
        RT.var("clojure.core", "require").invoke(Symbol.intern("org.apache.storm.cluster"));
        RT.var("org.apache.storm.cluster", "max-timestamp").bindRoot(new NewestTime());
        StormLoad.main(given);
    }

    private static final class NewestTime extends AFn {
        @Override
        public Object invoke(Object state, Object topology, Object workers) {
            long newest = 0;
            if (workers != null) {
                for (Object worker : (Iterable<?>) workers) {
                    Object[] path = {"/backpressure/" + topology + "/" + worker, false};
                    Object data = Reflector.invokeInstanceMethod(state, "get_data", path);
                    newest = Math.max(newest, data == null ? 0 : ByteBuffer.wrap((byte[]) data).getLong());
                }
            }
            return newest;
        }
    }
}
