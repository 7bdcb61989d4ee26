package ensue.peers.flinkcep;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.cep.nfa.NFA;
import org.apache.flink.cep.nfa.NFAState;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.nfa.compiler.NFACompiler;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBuffer;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferAccessor;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.time.TimerService;
import org.apache.flink.api.java.tuple.Tuple2;

/**
 * Reads questions, one JSON object a line, and prints what Flink's own matcher answers, one a line.
 *
 * <p>Events are fed as Flink's operator does it on event time: ordered by time, the time advanced before each new
 * one, and at the end of the stream advanced beyond all windows.
 */
public final class Answers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TimerService NO_CLOCK = () -> 0L;

    private final NFA<Event> nfa;
    private final NFAState state;
    private final SharedBuffer<Event> buffer;
    private final AfterMatchSkipStrategy skip;
    private final List<Object> matches = new ArrayList<>();
    private final List<Object> complete = new ArrayList<>();
    private final List<Object> timeouts = new ArrayList<>();

    private Answers(Pattern<Event, Event> pattern) {
        nfa = NFACompiler.compileFactory(pattern, true).createNFA();
        state = nfa.createInitialNFAState();
        skip = pattern.getAfterMatchSkipStrategy();
        buffer =
                new SharedBuffer<>(
                        StoreInMemory.make(),
                        TypeInformation.of(Event.class).createSerializer(new SerializerConfigImpl()));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readValue(line, Map.class))));
        }
        System.exit(0);
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> answer(Map<String, Object> question) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("name", question.get("name"));
        try {
            Pattern<Event, Event> pattern =
                    Patterns.build((List<Map<String, Object>>) question.get("pattern"));
            Answers run = new Answers(pattern);
            run.feed((List<Map<String, Object>>) question.get("events"));
            answer.put("matches", run.matches);
            answer.put("complete", run.complete);
            answer.put("timeouts", run.timeouts);
        } catch (Exception refused) {
            Throwable cause = refused;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
        return answer;
    }

    private void feed(List<Map<String, Object>> rows) throws Exception {
        long now = Long.MIN_VALUE;
        int index = 0;
        for (Map<String, Object> fields : rows) {
            Event event = new Event(index++, ((Number) fields.get("ts")).longValue(), fields);
            if (event.time != now) {
                now = event.time;
                advance(now, event.index);
            }
            try (SharedBufferAccessor<Event> accessor = buffer.getAccessor()) {
                for (Map<String, List<Event>> match :
                        nfa.process(accessor, state, event, event.time, skip, NO_CLOCK)) {
                    found(match, event.index);
                }
            }
        }
        advance(Long.MAX_VALUE, -1);
    }

    /** Moves the time on. A match that comes of it is noted with the event that moved it, or -1 for the end. */
    private void advance(long time, int index) throws Exception {
        try (SharedBufferAccessor<Event> accessor = buffer.getAccessor()) {
            var freed = nfa.advanceTime(accessor, state, time, skip);
            for (Map<String, List<Event>> match : freed.f0) {
                found(match, index);
            }
            for (Tuple2<Map<String, List<Event>>, Long> timeout : freed.f1) {
                timeouts.add(indices(timeout.f0));
            }
        }
    }

    private void found(Map<String, List<Event>> match, int index) {
        matches.add(indices(match));
        complete.add(index);
    }

    private static Map<String, List<Integer>> indices(Map<String, List<Event>> match) {
        Map<String, List<Integer>> indices = new TreeMap<>();
        match.forEach((name, events) -> indices.put(name, events.stream().map(e -> e.index).toList()));
        return indices;
    }
}
