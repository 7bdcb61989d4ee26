package ensue.peers.flinkcep;

import java.io.Serializable;
import java.util.Map;

/** An event: its place in the stream, its time, and its fields ("type" and "ts" are among them). */
public final class Event implements Serializable {
    final int index;
    final long time;
    final Map<String, Object> fields;

    Event(int index, long time, Map<String, Object> fields) {
        this.index = index;
        this.time = time;
        this.fields = fields;
    }
}
