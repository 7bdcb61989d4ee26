package ensue.peers.flinkcep;

import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.flink.api.common.state.KeyedStateStore;
import org.apache.flink.api.common.state.MapState;

/** The state that Flink's shared buffer asks for, in plain maps. */
final class StoreInMemory {
    private StoreInMemory() {}

    static KeyedStateStore make() {
        return (KeyedStateStore)
                Proxy.newProxyInstance(
                        StoreInMemory.class.getClassLoader(),
                        new Class<?>[] {KeyedStateStore.class},
                        (proxy, method, arguments) -> {
                            if (method.getName().equals("getMapState")) {
                                return new MapInMemory<Object, Object>();
                            }
                            throw new UnsupportedOperationException(method.toString());
                        });
    }

    private static final class MapInMemory<K, V> implements MapState<K, V> {
        private final Map<K, V> map = new HashMap<>();

        @Override
        public V get(K key) {
            return map.get(key);
        }

        @Override
        public void put(K key, V value) {
            map.put(key, value);
        }

        @Override
        public void putAll(Map<K, V> other) {
            map.putAll(other);
        }

        @Override
        public void remove(K key) {
            map.remove(key);
        }

        @Override
        public boolean contains(K key) {
            return map.containsKey(key);
        }

        @Override
        public Iterable<Map.Entry<K, V>> entries() {
            return map.entrySet();
        }

        @Override
        public Iterable<K> keys() {
            return map.keySet();
        }

        @Override
        public Iterable<V> values() {
            return map.values();
        }

        @Override
        public Iterator<Map.Entry<K, V>> iterator() {
            return map.entrySet().iterator();
        }

        @Override
        public boolean isEmpty() {
            return map.isEmpty();
        }

        @Override
        public void clear() {
            map.clear();
        }
    }
}
