package ensue.peers.flinkcep;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.WithinType;

/** Makes a Pattern by calling Flink's builder as a list of calls says. */
final class Patterns {
    private Patterns() {}

    static Pattern<Event, Event> build(List<Map<String, Object>> calls) {
        Pattern<Event, Event> pattern = null;
        for (Map<String, Object> call : calls) {
            pattern = pattern == null ? begun(call) : called(pattern, call);
        }
        return pattern;
    }

    @SuppressWarnings("unchecked")
    private static Pattern<Event, Event> group(Map<String, Object> call) {
        return build((List<Map<String, Object>>) call.get("group"));
    }

    @SuppressWarnings("unchecked")
    private static Pattern<Event, Event> begun(Map<String, Object> call) {
        AfterMatchSkipStrategy skip = strategy((Map<String, Object>) call.get("skip"));
        return call.containsKey("group")
                ? Pattern.begin(group(call), skip)
                : Pattern.begin((String) call.get("name"), skip);
    }

    private static Pattern<Event, Event> called(Pattern<Event, Event> pattern, Map<String, Object> call) {
        String method = (String) call.get("call");
        String name = (String) call.get("name");
        boolean group = call.containsKey("group");
        Duration window = call.get("window") == null ? null : millis(call.get("window"));
        List<?> numbers = (List<?>) call.getOrDefault("numbers", List.of());
        return switch (method) {
            case "next" -> group ? pattern.next(group(call)) : pattern.next(name);
            case "followedBy" -> group ? pattern.followedBy(group(call)) : pattern.followedBy(name);
            case "followedByAny" -> group ? pattern.followedByAny(group(call)) : pattern.followedByAny(name);
            case "notNext" -> pattern.notNext(name);
            case "notFollowedBy" -> pattern.notFollowedBy(name);
            case "where" -> pattern.where(condition(call));
            case "or" -> pattern.or(condition(call));
            case "until" -> pattern.until(condition(call));
            case "optional" -> pattern.optional();
            case "greedy" -> pattern.greedy();
            case "consecutive" -> pattern.consecutive();
            case "allowCombinations" -> pattern.allowCombinations();
            case "oneOrMore" -> pattern.oneOrMore(window);
            case "timesOrMore" -> pattern.timesOrMore(whole(numbers.get(0)), window);
            case "times" ->
                    numbers.size() == 1
                            ? pattern.times(whole(numbers.get(0)), window)
                            : pattern.times(whole(numbers.get(0)), whole(numbers.get(1)), window);
            case "within" ->
                    pattern.within(
                            millis(numbers.get(0)),
                            WithinType.valueOf((String) call.getOrDefault("kind", "FIRST_AND_LAST")));
            default -> throw new IllegalArgumentException("unknown call: " + method);
        };
    }

    private static Condition condition(Map<String, Object> call) {
        return new Condition((List<?>) call.get("condition"));
    }

    private static int whole(Object number) {
        return ((Number) number).intValue();
    }

    private static Duration millis(Object number) {
        return Duration.ofMillis(((Number) number).longValue());
    }

    private static AfterMatchSkipStrategy strategy(Map<String, Object> skip) {
        if (skip == null) {
            return AfterMatchSkipStrategy.noSkip();
        }
        String name = (String) skip.get("name");
        boolean strict = Boolean.TRUE.equals(skip.get("throw"));
        return switch ((String) skip.get("kind")) {
            case "noSkip" -> AfterMatchSkipStrategy.noSkip();
            case "skipToNext" -> AfterMatchSkipStrategy.skipToNext();
            case "skipPastLastEvent" -> AfterMatchSkipStrategy.skipPastLastEvent();
            case "skipToFirst" ->
                    strict
                            ? AfterMatchSkipStrategy.skipToFirst(name).throwExceptionOnMiss()
                            : AfterMatchSkipStrategy.skipToFirst(name);
            case "skipToLast" ->
                    strict
                            ? AfterMatchSkipStrategy.skipToLast(name).throwExceptionOnMiss()
                            : AfterMatchSkipStrategy.skipToLast(name);
            default -> throw new IllegalArgumentException("unknown strategy: " + skip);
        };
    }
}
