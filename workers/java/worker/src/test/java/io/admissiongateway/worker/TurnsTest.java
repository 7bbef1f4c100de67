package io.admissiongateway.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

final class TurnsTest {
    private final List<Turns.Waiter> running = new ArrayList<>();
    private final Map<Turns.Waiter, Integer> weights = new HashMap<>();

    /** Whoever comes, ends or gives up: the limit is kept, nobody overtakes within a client, nobody waits for ever. */
    @Test
    void turnsKeepTheirLimitAndTheOrder() {
        for (long seed = 0; seed < 300; seed++) {
            Random random = new Random(seed);
            int limit = 1 + random.nextInt(50);
            Turns turns = new Turns(Turns.Kind.EVALUATED, limit, random.nextBoolean());
            Map<Client, Deque<Turns.Waiter>> waiting = new HashMap<>();
            List<Client> clients = new ArrayList<>();
            for (int count = random.nextInt(4); count >= 0; count--) {
                clients.add(new Client());
                waiting.put(clients.get(clients.size() - 1), new ArrayDeque<>());
            }
            for (int left = 300; left > 0 || !running.isEmpty(); ) {
                Client client = clients.get(random.nextInt(clients.size()));
                Deque<Turns.Waiter> before = waiting.get(client);
                if (left > 0 && random.nextInt(3) > 0) {
                    left--;
                    int weight = 1 + random.nextInt(60);
                    Turns.Waiter asked =
                            new Turns.Waiter(
                                    client,
                                    weight,
                                    told -> {
                                        assertEquals(told, before.poll(), "it has overtaken another one");
                                        running.add(told);
                                    });
                    weights.put(asked, weight);
                    if (turns.take(asked)) {
                        assertTrue(before.isEmpty(), "it has overtaken another one");
                        running.add(asked);
                    } else {
                        before.add(asked);
                    }
                } else if (!before.isEmpty() && random.nextInt(8) == 0) {
                    turns.giveUp(before.peek());
                    running.removeIf(ended -> !ended.hasTurn());
                } else if (!running.isEmpty()) {
                    turns.give(running.remove(random.nextInt(running.size())));
                }
                int used = running.stream().mapToInt(weights::get).sum();
                assertEquals(used, turns.used(), "seed " + seed);
                assertTrue(used <= limit || running.size() == 1, "seed " + seed);
                assertTrue(used > 0 || turns.waiters() == 0, "seed " + seed);
            }
            assertEquals(0, turns.waiters(), "seed " + seed);
            weights.clear();
        }
    }

    @Test
    void aClientLeavesHalfOfTheRoomToTheOthersWhoTakeTurns() {
        Turns turns = new Turns(Turns.Kind.EVALUATED, 8, true);
        List<String> order = new ArrayList<>();
        Client greedy = new Client();
        List<Turns.Waiter> first = new ArrayList<>();
        for (int index = 0; index < 6; index++) {
            Turns.Waiter asked = new Turns.Waiter(greedy, 1, told -> order.add("greedy"));
            if (turns.take(asked)) {
                first.add(asked);
            }
        }
        assertEquals(4, first.size());
        Client other = new Client();
        assertTrue(turns.take(new Turns.Waiter(other, 2, told -> {})));
        assertFalse(turns.take(new Turns.Waiter(other, 1, told -> order.add("other"))));
        first.forEach(turns::give);
        assertEquals(List.of("greedy", "other", "greedy"), order);
    }
}
