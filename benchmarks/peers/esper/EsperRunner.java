import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.EventBean;
import com.espertech.esper.common.client.EventSender;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.EPEventService;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import com.espertech.esper.runtime.client.EPStatement;
import java.io.BufferedReader;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Runs one EPL statement on the events of a CSV file: EsperRunner STATEMENT EVENTS MATCHES PASSES.
 *
 * The events are objects before the clock starts. They pass several times through one deployment,
 * each pass a day behind the one before, so that the later ones run on code that Java has compiled.
 * The matches of the first pass (fields s and e) are written, and a line of JSON for each pass.
 */
public final class EsperRunner {
    private static final long DAY = 86_400_000L;

    public static final class Stock {
        private final long ts;
        private final String type;
        private final String symbol;
        private final double price;
        private final long volume;

        Stock(String[] cells, Map<String, String> known) {
            ts = Long.parseLong(cells[0]);
            type = known.computeIfAbsent(cells[1], text -> text);
            symbol = known.computeIfAbsent(cells[2], text -> text);
            price = Double.parseDouble(cells[3]);
            volume = Long.parseLong(cells[4]);
        }

        public long getTs() { return ts; }
        public String getType() { return type; }
        public String getSymbol() { return symbol; }
        public double getPrice() { return price; }
        public long getVolume() { return volume; }
    }

    public static void main(String[] args) throws Exception {
        String statement = Files.readString(Path.of(args[0]));
        List<Stock> events = read(Path.of(args[1]));
        EPRuntime runtime = deployed(statement, events.get(0).ts);
        List<long[]> found = new ArrayList<>();
        listen(runtime, found);
        EventSender[] senders = senders(runtime.getEventService(), events);
        long span = events.get(events.size() - 1).ts - events.get(0).ts + 2 * DAY;
        for (int pass = 0; pass < Integer.parseInt(args[3]); pass++) {
            found.clear();
            double cpu = cpuSeconds();
            long begun = System.nanoTime();
            send(runtime.getEventService(), events, senders, pass * span);
            double seconds = (System.nanoTime() - begun) / 1e9;
            System.out.printf("{\"seconds\": %.4f, \"cpu_seconds\": %.4f, \"matches\": %d}%n",
                seconds, cpuSeconds() - cpu, found.size());
            if (pass == 0) write(found, Path.of(args[2]));
        }
        runtime.destroy();
    }

    private static List<Stock> read(Path file) throws Exception {
        List<Stock> events = new ArrayList<>();
        Map<String, String> known = new HashMap<>();
        try (BufferedReader lines = Files.newBufferedReader(file)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                events.add(new Stock(line.split(","), known));
            }
        }
        return events;
    }

    /** Each type of event is a stream, and STOCK has them all. */
    private static EPRuntime deployed(String statement, long begin) throws Exception {
        Configuration configuration = new Configuration();
        for (String name : new String[] {"A", "B", "C", "D", "E", "STOCK"}) {
            configuration.getCommon().addEventType(name, Stock.class);
        }
        configuration.getRuntime().getThreading().setInternalTimerEnabled(false);
        configuration.getRuntime().getThreading().setListenerDispatchPreserveOrder(false);
        configuration.getRuntime().getThreading().setInsertIntoDispatchPreserveOrder(false);
        EPCompiled compiled = EPCompilerProvider.getCompiler()
            .compile(statement, new CompilerArguments(configuration));
        EPRuntime runtime = EPRuntimeProvider.getRuntime("benchmark", configuration);
        runtime.initialize();
        runtime.getEventService().clockExternal();
        runtime.getEventService().advanceTime(begin - 1);
        runtime.getDeploymentService().deploy(compiled);
        return runtime;
    }

    private static void listen(EPRuntime runtime, List<long[]> found) {
        String deployment = runtime.getDeploymentService().getDeployments()[0];
        EPStatement[] statements = runtime.getDeploymentService().getDeployment(deployment).getStatements();
        statements[0].addListener((fresh, old, statement, service) -> {
            if (fresh == null) return;
            for (EventBean match : fresh) {
                found.add(new long[] {(Long) match.get("s"), (Long) match.get("e")});
            }
        });
    }

    /** The stream that each event goes to. */
    private static EventSender[] senders(EPEventService service, List<Stock> events) {
        boolean together = Boolean.getBoolean("one.stream");
        Map<String, EventSender> known = new HashMap<>();
        return events.stream()
            .map(event -> known.computeIfAbsent(together ? "STOCK" : event.type, service::getEventSender))
            .toArray(EventSender[]::new);
    }

    private static void send(EPEventService service, List<Stock> events, EventSender[] senders, long shift) {
        for (int k = 0; k < senders.length; k++) {
            Stock event = events.get(k);
            service.advanceTime(event.ts + shift);
            senders[k].sendEvent(event);
        }
        service.advanceTime(events.get(senders.length - 1).ts + shift + DAY);
    }

    private static void write(List<long[]> found, Path file) throws Exception {
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(file))) {
            for (long[] match : found) out.println(match[0] + "," + match[1]);
        }
    }

    private static double cpuSeconds() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime() / 1e9;
    }
}
